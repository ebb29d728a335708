"""The demo behind `make demo`: ten steps on a real repository, a real server and a real model.

`stage` owns every process and folder of a run, `scenes` are the ten steps, `__main__` tells the story. The
end-to-end test runs the same scenes.
"""
