"""The version, in one place: the build reads it from this file."""

VERSION = "0.1.0"
