"""Ranks that take another path, come late or wait for long work. What they do is in ``library``."""

from library import data, evaluation, models

from phases import fault

fault("before_step", "main_barrier")(evaluation.validate_on_main)
fault("before_step", "swallowed")(evaluation.push_metrics)
fault("before_step", "skip_batch")(data.pack_sequences)
fault("on_loss", "conditional")(evaluation.average_spike)
fault("number_of_steps", "uneven")(data.batches_of_this_rank)
fault("after_training", "uneven")(data.end_of_data)

fault("on_sample", "slow_data")(data.fetch_sample)
fault("on_sample", "slow_store")(data.fetch_from_object_store)
fault("before_step", "stuck_read")(data.read_next_shard)
fault("before_step", "stuck_read_watched")(data.read_next_shard_watched)
fault("before_step", "compile")(evaluation.compile_for_shape)
fault("before_step", "pause")(evaluation.pause)

fault("before_model", "tokenise")(evaluation.tokenise_on_main)
fault("before_model", "download")(evaluation.download_on_main)
fault("before_step", "evaluate")(evaluation.evaluate_on_main)
fault("before_step", "evaluate_quietly")(evaluation.evaluate_quietly_on_main)
fault("before_step", "save")(evaluation.save_on_main)

fault("make_model", "wider_model")(models.wider)
fault("make_model", "deeper_model")(models.deeper)
fault("make_model", "larger_vocabulary")(models.larger_vocabulary)
fault("on_gradients", "extra_broadcast")(evaluation.share_statistics)
