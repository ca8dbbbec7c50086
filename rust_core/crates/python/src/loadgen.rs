//! `Requestor`, `Provider` and `Broadcaster`: the load engine's own methods, with its errors as
//! exceptions.
//!
//! Every call that takes an engine's lock releases the GIL first, because `close` holds that lock
//! while it joins threads.

use loadgen::{BroadcasterConfig, ConfigError, EngineError, ProviderConfig, RequestorConfig};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Add the classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Requestor>()?;
    module.add_class::<Provider>()?;
    module.add_class::<Broadcaster>()
}

fn value_error(error: ConfigError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn runtime_error(error: EngineError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Users of the benchmark workload: each sends requests at planned times and measures the replies.
#[pyclass(frozen, module = "subjectbus._core")]
pub(crate) struct Requestor(loadgen::Requestor);

#[pymethods]
impl Requestor {
    /// Take a JSON object of configuration keys. ValueError names an unusable key.
    #[new]
    fn new(config: &str) -> PyResult<Self> {
        let config = RequestorConfig::from_json(config).map_err(value_error)?;
        Ok(Self(loadgen::Requestor::new(config)))
    }

    /// Start the threads and the connect phase; return at once.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.connect()).map_err(runtime_error)
    }

    /// Begin the sweep, or without one or after it the warm-up, at a time on the run's clock, or
    /// now; return at once.
    #[pyo3(signature = (at_ns=None))]
    fn start(&self, py: Python<'_>, at_ns: Option<u64>) -> PyResult<()> {
        py.detach(|| self.0.start(at_ns)).map_err(runtime_error)
    }

    /// End early: no more requests, then the drain, then the result; return at once.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.stop()).map_err(runtime_error)
    }

    /// Return a JSON snapshot of phase and counts.
    fn progress(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.progress())
    }

    /// Return everything measured as JSON; RuntimeError unless the phase is "done".
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.result()).map_err(runtime_error)
    }

    /// Close the connections and join the threads, without the GIL.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// Providers of the benchmark workload: each answers the requests on its subject once it is
/// connected.
#[pyclass(frozen, module = "subjectbus._core")]
pub(crate) struct Provider(loadgen::Provider);

#[pymethods]
impl Provider {
    /// Take a JSON object of configuration keys. ValueError names an unusable key.
    #[new]
    fn new(config: &str) -> PyResult<Self> {
        let config = ProviderConfig::from_json(config).map_err(value_error)?;
        Ok(Self(loadgen::Provider::new(config)))
    }

    /// Start the threads and the connect phase; return at once.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.connect()).map_err(runtime_error)
    }

    /// Set the start of the requests, a time on the run's clock, or now, from which stalls are
    /// counted; return at once.
    #[pyo3(signature = (at_ns=None))]
    fn start(&self, py: Python<'_>, at_ns: Option<u64>) -> PyResult<()> {
        py.detach(|| self.0.start(at_ns)).map_err(runtime_error)
    }

    /// End answering once the delayed replies have left; the counts become the result. Return at
    /// once.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.stop()).map_err(runtime_error)
    }

    /// Return a JSON snapshot of phase and counts.
    fn progress(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.progress())
    }

    /// Return the counts as JSON; RuntimeError unless the phase is "done".
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.result()).map_err(runtime_error)
    }

    /// Close the connections and join the threads, without the GIL.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// Users of the broadcast workload: each message goes to all users of its subject.
#[pyclass(frozen, module = "subjectbus._core")]
pub(crate) struct Broadcaster(loadgen::Broadcaster);

#[pymethods]
impl Broadcaster {
    /// Take a JSON object of configuration keys. ValueError names an unusable key.
    #[new]
    fn new(config: &str) -> PyResult<Self> {
        let config = BroadcasterConfig::from_json(config).map_err(value_error)?;
        Ok(Self(loadgen::Broadcaster::new(config)))
    }

    /// Start the threads and the connect phase; return at once.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.connect()).map_err(runtime_error)
    }

    /// Begin the warm-up at a time on the run's clock, or now; return at once.
    #[pyo3(signature = (at_ns=None))]
    fn start(&self, py: Python<'_>, at_ns: Option<u64>) -> PyResult<()> {
        py.detach(|| self.0.start(at_ns)).map_err(runtime_error)
    }

    /// End early: no more messages, then the drain, then the result; return at once.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.stop()).map_err(runtime_error)
    }

    /// Return a JSON snapshot of phase and counts.
    fn progress(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.progress())
    }

    /// Return everything measured as JSON; RuntimeError unless the phase is "done".
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.result()).map_err(runtime_error)
    }

    /// Close the connections and join the threads, without the GIL.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
