"""Do the labels of the ID images fit the outputs of the network?"""

from collections.abc import Iterator

from rood.evaluation.diagnosis.base import Diagnosis, NetworkCheck, Setup, Subject


class ClassFolders(NetworkCheck):
    """As many classes as outputs, and every label is the number of an output."""

    place = 4

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        outputs, name = subject.model.classes, subject.name
        if not subject.labelled:
            yield self.warn(
                "expected labelled ID images, got none: accuracy and class order are unchecked",
                "put --inside in one folder per class, in the order of the network's outputs",
                name,
            )
            return
        labels = subject.images.labels
        assert labels is not None
        named = len(subject.images.classes)
        if (top := int(labels.max())) >= outputs:
            yield self.fail(
                f"expected labels 0 to {outputs - 1}, got up to {top}",
                "are these the network's classes?",
                name,
            )
        elif named and named != outputs:
            yield self.warn(
                f"expected {outputs} class folders, one for each output, got {named}",
                f"give every class a folder, in the order of the outputs, so that label "
                f"{named - 1} is output {named - 1}",
                name,
            )
        else:
            there = len(set(labels[labels >= 0].tolist()))
            yield self.ok(f"images of {there} of {outputs} classes", name)
