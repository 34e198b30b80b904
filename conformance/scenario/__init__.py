"""The language of scenarios: operations, their steps through the lifecycle, validation, earlier formats."""
