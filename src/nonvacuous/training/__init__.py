"""Training: plain (for learned priors) and of posteriors, killable and resumable at any moment."""

from nonvacuous.training.erm import Score, Trained, TrainSettings, train
from nonvacuous.training.events import EventLog, read_events
from nonvacuous.training.failures import CorruptCheckpoint, Diverged, OtherConfiguration
from nonvacuous.training.loop import Records
from nonvacuous.training.many import (
    EpochRecord,
    Job,
    JobResult,
    ManyExamples,
    ManyResult,
    ManySettings,
    train_many,
)
from nonvacuous.training.objectives import OBJECTIVES, Objective, bounded_cross_entropy, kl_inverse
from nonvacuous.training.posterior import PosteriorSettings, TrainedPosterior, train_posterior

__all__ = [
    "OBJECTIVES",
    "CorruptCheckpoint",
    "Diverged",
    "EpochRecord",
    "EventLog",
    "Job",
    "JobResult",
    "ManyExamples",
    "ManyResult",
    "ManySettings",
    "Objective",
    "OtherConfiguration",
    "PosteriorSettings",
    "Records",
    "Score",
    "TrainSettings",
    "Trained",
    "TrainedPosterior",
    "bounded_cross_entropy",
    "kl_inverse",
    "read_events",
    "train",
    "train_many",
    "train_posterior",
]
