"""MLflow and Weights & Biases with the calls that rood makes, writing down what they get."""

import re
from pathlib import Path
from types import ModuleType


class FakeRun:
    """A run, which is active inside `with`."""

    def __init__(self, tracker):
        self.tracker, self.config, self.ended = tracker, self, None

    def __enter__(self):
        self.tracker.run = self
        return self

    def __exit__(self, error, *_):
        self.tracker.run, self.ended = None, error.__name__ if error else "finished"

    def update(self, facts, allow_val_change):
        assert allow_val_change  # a second audit in one run
        self.tracker.facts |= facts

    def log(self, values):
        self.tracker.values |= values

    def log_artifact(self, artifact):
        self.tracker.files += artifact.files


class FakeArtifact:
    def __init__(self, name, type):
        self.files = []

    def add_file(self, path):
        self.files.append(Path(path))


class FakeTracker(ModuleType):
    """What both have: the active run, and what was logged."""

    def __init__(self, name):
        super().__init__(name)
        self.run, self.runs, self.values, self.facts, self.files = None, [], {}, {}, []

    def start(self, **about):
        assert self.run is None
        self.about = about
        self.runs.append(FakeRun(self))
        return self.runs[-1]


class FakeMLflow(FakeTracker):
    def __init__(self):
        super().__init__("mlflow")
        self.start_run, self.set_tags = self.start, self.facts.update

    def active_run(self):
        return self.run

    def log_metrics(self, values):
        assert len(values) <= 1000
        for name in values:  # its rule for the names of metrics
            assert re.fullmatch(r"[/\w.\- :]+", name), name
            assert not set(name.split("/")) & {"", ".", ".."}, name
        self.values |= values

    def log_artifact(self, path, folder):
        self.files.append(Path(path))


class FakeWandb(FakeTracker):
    Artifact = FakeArtifact

    def __init__(self):
        super().__init__("wandb")
        self.init = self.start


FAKES = {"mlflow": FakeMLflow, "wandb": FakeWandb}
