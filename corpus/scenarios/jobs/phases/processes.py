"""A process that dies: by a signal, by an exception, by leaving early. What it does is in ``library``."""

from library import checks, native, preemption

from phases import fault

fault("before_step", "sigkill")(native.leave_at_once)
fault("before_step", "sigsegv")(native.read_token_table)
fault("before_step", "sigbus")(native.read_index_page)
fault("before_step", "sigabrt")(native.release_buffer)
fault("before_step", "terminate")(native.grow_queue)
fault("before_step", "sigill")(native.fused_gelu)
fault("before_step", "sigfpe")(native.bucket_of)
fault("before_step", "sigkill_later")(native.in_background(native.leave_at_once))
fault("before_step", "sigsegv_later")(native.in_background(native.read_token_table))
fault("before_step", "sigbus_later")(native.in_background(native.read_index_page))

fault("before_step", "wrong_shape_matmul")(checks.project_logits)
fault("before_step", "index")(checks.embed_special_tokens)
fault("before_step", "key")(checks.shift_labels)
fault("before_step", "assertion")(checks.check_sequence_length)
fault("before_step", "type")(checks.build_scheduler)
fault("before_step", "exit_17")(checks.check_manifest)
fault("before_step", "exit_3")(checks.leave_with_status)
fault("before_step", "early_exit")(checks.stop_early)
fault("before_process_group", "import")(checks.select_attention)
fault("before_process_group", "file")(checks.load_tokenizer)
fault("before_process_group", "config")(checks.check_config)

fault("before_process_group", "save_when_told")(preemption.install_handlers)
