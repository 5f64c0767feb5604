"""Names that other libraries have for members of objects, and what to write in graphc."""

from __future__ import annotations

from typing import Final

from graphc.ir.foreign_names import by_name

_LOGGED: Final = "audio graph histogram hparams image pr_curve scalar text"

# Attributes and methods of sessions, graphs and layers in other libraries -> what to write.
_MEMBERS: Final[dict[str, dict[str, str]]] = {
    "Graph": {
        "as_default": "`with graph:`",
        "as_graph_def": "gc.save(session, path, signatures=...), which keeps the graph",
        "get_collection": "graph.collection(name)",
        "get_operation_by_name": "graph.node(name)",
        "get_operations": "graph.nodes",
        "get_tensor_by_name": "session.run(name); fetches and feeds may be names",
        "trainable_variables": "[v for v in graph.variables.values() if v.trainable]",
    },
    "At": {
        "set": "x.at[index].set(values)",
    },
    "Checkpointer": {
        "latest_checkpoint": "checkpointer.latest()",
        "load read": "checkpointer.restore(session)",
        "restore_or_initialize": "checkpointer.restore(session), which gives None without a file",
        "write": "checkpointer.save(session, step)",
    },
    "EventWriter": {
        **{f"add_{name}": f"writer.{name}" for name in _LOGGED.split()},
        "add_images": "writer.image",
        "add_run_metadata": "writer.run_metadata",
        "add_scalars": "writer.scalar, once for each curve",
        "add_summary": "writer.scalar and so on, with numbers that session.run gave",
        "log": "writer.scalar",
    },
    "History": {
        "epoch": "history.epochs",
        "history": "history.metrics",
    },
    "Layer": {
        "add": "gc.nn.Sequential([layer, another])",
        "add_weight": "layer.variable(name, initial, shape)",
        "apply forward": "layer(x)",
        "bias": 'layer.variables; session.get("<layer>/bias") gives numbers',
        "compile": "gc.minimize(loss, optax.adam(rate)), then session.run",
        "cpu": "session.run, which returns values",
        "cuda": 'with gc.device("/gpu:0"): around the call',
        "eval": "layer(x, training=False)",
        "evaluate": "session.run(metric, feeds)",
        "fit": "gc.train.fit(session, job), or a loop of session.run([train, loss], feeds)",
        "get_layer": "layer.inner_layers, or model[i] of a Sequential",
        "get_weights state_dict": "session.values()",
        "kernel weight": 'layer.variables; session.get("<layer>/kernel") gives numbers',
        "load_state_dict set_weights": "session.set_all(values)",
        "load_weights": "session.set_all(np.load(path))",
        "named_parameters": "{v.name: v for v in layer.variables}",
        "parameters trainable_weights": "layer.trainable_variables",
        "pop": "gc.nn.Sequential(model.layers[:-1])",
        "predict": "session.run(layer(x), feeds)",
        "requires_grad_": "gc.minimize(loss, optimizer, variables=...)",
        "save": "gc.save(session, path, signatures=...)",
        "save_weights": "np.savez(path, **session.values())",
        "to": "gc.device(name) around the call",
        "train": "layer(x, training=True)",
        "weights": "layer.variables",
        "zero_grad": "nothing: gradients are nodes, and do not accumulate",
    },
    "Metric": {
        "compute eval result": "session.run(mean.value)",
        "reset_state reset_states": "session.run(mean.reset)",
        "update_op": "mean.update",
        "update_state": "session.run([train, mean.update], feeds)",
    },
    "Model": {
        **dict.fromkeys(
            ("eval", "forward", "predict", "predict_on_batch", "run", "serve"),
            'loaded.signatures["predict"](x=values)',
        ),
        "fit": "a signature with updates: gc.Signature(inputs, outputs, updates=[train])",
        "get_weights state_dict": "loaded.state()",
        "summary": "loaded.signatures",
        "weights": "loaded.variables",
    },
    "Node": {
        "eval": "session.run(node)",
        "minimize": "gc.minimize(loss, optimizer)",
        "run step": "session.run(node, feeds)",
    },
    "Pipeline": {
        "apply": "pipeline.map(f)",
        "as_numpy_iterator make_initializable_iterator make_one_shot_iterator": "iter(pipeline)",
        "cache": "list(pipeline.take(n)), and gc.data.from_iterable of the list",
        "flat_map": "pipeline.interleave(f)",
        "from_generator": "gc.data.from_generator(generator)",
        "from_tensor_slices": "gc.data.from_arrays(arrays)",
        "get_next": "next(iter(pipeline))",
        "padded_batch": "pipeline.batch(size).pad()",
        "parallel_map": "pipeline.map(f, workers=4)",
        "unbatch": "the pipeline before batch(size)",
    },
    "Places": {
        "assign update": "x.at[index].set(values)",
        "sub subtract": "x.at[index].add(-values)",
    },
    "Session": {
        "as_default": "the session itself: session.run(x)",
        "eval": "session.run(tensor, feeds)",
        "fit": "gc.train.fit(session, job)",
        "graph_def": "session.graph",
        "load restore": "session.set_all(np.load(path))",
        "load_state_dict": "session.set_all(values)",
        "make_callable": "gc.compile(graph, fetches, feeds)",
        "partial_run": "session.run(fetches, feeds)",
        "predict": "session.run(prediction, feeds)",
        "save": "gc.save(session, path, signatures=...), or np.savez(path, **session.values())",
        "state_dict": "session.values()",
        "variables": "session.values(); session.graph.variables are the variables",
    },
}
MEMBERS: Final = {kind: by_name(rows) for kind, rows in _MEMBERS.items()}
