"""Things that tests of several rooms build."""
