"""Errors that a user can fix."""

import pytest
from pydantic import BaseModel, Field, field_validator

from recfusion.core.errors import InputError, choices, validating


class Inner(BaseModel):
    weight: float = Field(0.0, le=1)


class Record(BaseModel):
    inner: Inner = Inner()
    name: str = ""

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 3:
            raise ValueError("Expected a short name")
        return name


def test_an_error_carries_the_field_it_is_about() -> None:
    assert InputError("Expected this, got that.").field is None
    assert InputError("Expected this, got that.", "where").field == "where"
    assert choices("model", "x", ["a", "b"], "model").field == "model"


def test_a_pydantic_error_becomes_one_sentence_about_its_first_field() -> None:
    with pytest.raises(InputError) as caught, validating("a record in 'file'", "write it again"):
        Record.model_validate({"inner": {"weight": 2}})
    told = "Expected a record in 'file': inner.weight: input should be less than or equal to 1; write it again."
    assert str(caught.value) == told
    assert caught.value.field == "inner.weight"


def test_our_own_validators_read_like_pydantic_s_and_the_value_is_shown_on_request_alone() -> None:
    with pytest.raises(InputError) as caught, validating("another option", show=True):
        Record.model_validate({"name": "long name"})
    assert str(caught.value) == "Expected another option: name: expected a short name, got 'long name'."


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyError), validating("a record"):
        raise KeyError
