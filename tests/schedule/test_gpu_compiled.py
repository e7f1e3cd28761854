"""What GPU templates promise of real code, as far as PTX shows it: candidates compile and are what they say."""

from __future__ import annotations

import re

import pytest
from cuda_tasks import CUDA, CUDA_KINDS, cuda_task, draw
from iree.compiler import ir

from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.passes.apply_tuned import workgroup_counts
from felix_mlir.schedule import with_configuration
from felix_mlir.schedule.template import evaluated

PER_TEMPLATE = 1


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nchw", "softmax", "layer_norm", "narrow_matmul_odd", "narrow_conv"])
def test_candidates_compile_and_launch_what_they_say(kind, tmp_path):
    """PTX has the workgroup's threads, the module the number of workgroups."""
    task = cuda_task(CUDA_KINDS[kind])
    for template in task.tunable.templates:
        for values in draw(template, PER_TEMPLATE, seed=1):
            configuration = template.configuration(values)
            source, lowered, binary = (tmp_path / name for name in ("candidate.mlir", "lowered.mlir", "candidate.vmfb"))
            source.write_text(with_configuration(task.tunable.configured.read_text(), configuration))
            flags = (*CUDA.compile_flags, "--compile-from=executable-configurations", "--compile-to=executable-targets")
            outcome = run_compiler([tool_path("iree-compile"), str(source), *flags, "-o", str(lowered)], 120)
            assert outcome.ok, f"{template.name} {values}: {outcome.message}"
            with ir.Context():
                counts = workgroup_counts(ir.Module.parse(lowered.read_text()).operation)
            assert list(counts.values()) == [configuration.workgroups(template.dispatch)]
            flags = (*CUDA.compile_flags, "--compile-from=executable-targets")
            outcome = run_compiler([tool_path("iree-compile"), str(lowered), *flags, "-o", str(binary)], 120)
            assert outcome.ok, outcome.message
            threads = re.findall(rb"\.maxntid (\d+)", binary.read_bytes())
            assert threads == [str(evaluated(template.threads, values)).encode()]
