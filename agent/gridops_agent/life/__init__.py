"""The life of an agent on its machine: installed, kept alive, asleep and awake, upgraded, examined, taken away."""
