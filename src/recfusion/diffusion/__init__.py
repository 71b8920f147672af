"""Diffusion of real and binary data: schedules, two processes, their bound, objectives and samplers."""
