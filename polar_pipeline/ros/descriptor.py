"""What `ros2 param describe` shows of each parameter."""

from __future__ import annotations

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

from polar_pipeline.live.parameters import Parameter


def make_descriptor(row: Parameter) -> ParameterDescriptor:
    """The descriptor of a row of the table of parameters."""
    descriptor = ParameterDescriptor(description=row.text, read_only=row.read_only, dynamic_typing=row.dynamic)
    if row.choices or row.numbers:
        descriptor.additional_constraints = f"one of: {', '.join(map(str, row.choices or row.numbers))}"
    if row.numbers:
        steps = {after - before for before, after in zip(row.numbers, row.numbers[1:])}
        step = steps.pop() if len(steps) == 1 else 1
        descriptor.integer_range = [IntegerRange(from_value=row.numbers[0], to_value=row.numbers[-1], step=step)]
    if row.limits is not None:
        low, high = row.limits
        if isinstance(row.default, float):
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        else:
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=1)]
    return descriptor
