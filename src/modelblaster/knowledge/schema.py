"""Tables of the memory. One row version is written down in the file; `store` refuses newer ones."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, DateTime, Float, Integer, MetaData, String, Table, Text

SCHEMA_VERSION = 1

METADATA = MetaData()

VERSION = Table("schema_version", METADATA, Column("only", Integer, primary_key=True), Column("version", Integer))

# (run, step) names an outcome, so that one is counted once however often it is handed in.
OUTCOMES = Table(
    "outcomes",
    METADATA,
    Column("run", String(128), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("recorded", DateTime(timezone=True), nullable=False),
    Column("slot", String(64), nullable=False, index=True),
    Column("family", String(64), nullable=False),
    Column("device", String(256), nullable=False),
    Column("state", String(128), nullable=False),
    Column("technique", String(128), nullable=False),
    Column("candidate", String(64), nullable=False),
    Column("parent", String(64)),
    Column("cause", String(32), nullable=False),
    Column("median_ns", Float),
    Column("protocol", String(64)),
    Column("reward", Float),
    Column("reason", Text, nullable=False),
    Column("kept", Boolean, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("record", Text, nullable=False),
)

ARMS = Table(
    "arms",
    METADATA,
    Column("state", String(128), primary_key=True),
    Column("technique", String(128), primary_key=True),
    Column("device_class", String(256), primary_key=True),
    Column("n", Integer, nullable=False),
    Column("mean", Float, nullable=False),
    Column("m2", Float, nullable=False),
    Column("best", Float, nullable=False),
    Column("failures", Integer, nullable=False),
)

IMPLEMENTATIONS = Table(
    "implementations",
    METADATA,
    Column("slot", String(64), primary_key=True),
    Column("device", String(256), primary_key=True),
    Column("candidate", String(64), primary_key=True),
    Column("family", String(64), nullable=False),
    Column("schedule", Text, nullable=False),
    Column("median_ns", Float, nullable=False),
    Column("protocol", String(64), nullable=False),
    Column("recorded", DateTime(timezone=True), nullable=False),
)
