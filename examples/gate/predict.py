"""Train a classifier and write its answers to examples that were set aside."""

from __future__ import annotations

import csv
import sys

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

data = load_breast_cancer()
train_x, test_x, train_y, test_y = train_test_split(
    data.data, data.target, test_size=0.5, random_state=0
)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train_x, train_y)
with open(sys.argv[1], "w", newline="") as stream:
    writer = csv.writer(stream)
    writer.writerow(["prediction", "label", "site"])
    for row, (answer, label) in enumerate(zip(model.predict(test_x), test_y, strict=True)):
        writer.writerow([data.target_names[answer], data.target_names[label], "AB"[row % 2]])
