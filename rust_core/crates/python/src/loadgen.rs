//! `Requestor`, `Provider` and `Broadcaster`: the load engine's own methods, with its errors as
//! exceptions.
//!
//! Every call that takes an engine's lock gives up the GIL first: `close` holds that lock while it
//! joins threads.

use loadgen::{BroadcasterConfig, ConfigError, EngineError, ProviderConfig, RequestorConfig};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Adds the classes to the module.
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
    /// Takes a JSON object of configuration keys; ValueError names the key that cannot be used.
    #[new]
    fn new(config: &str) -> PyResult<Self> {
        let config = RequestorConfig::from_json(config).map_err(value_error)?;
        Ok(Self(loadgen::Requestor::new(config)))
    }

    /// Starts the threads and the connect phase; returns at once.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.connect()).map_err(runtime_error)
    }

    /// Begins the sweep where there is one, the warm-up after it or without one, at a time of the run's
    /// clock, or now; returns at once.
    #[pyo3(signature = (at_ns=None))]
    fn start(&self, py: Python<'_>, at_ns: Option<u64>) -> PyResult<()> {
        py.detach(|| self.0.start(at_ns)).map_err(runtime_error)
    }

    /// Ends early: no more requests, then the drain, then the result; returns at once.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.stop()).map_err(runtime_error)
    }

    /// JSON snapshot of phase and counts.
    fn progress(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.progress())
    }

    /// JSON of everything measured; RuntimeError unless the phase is "done".
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.result()).map_err(runtime_error)
    }

    /// Closes the connections and joins the threads. Releases the GIL.
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
    /// Takes a JSON object of configuration keys; ValueError names the key that cannot be used.
    #[new]
    fn new(config: &str) -> PyResult<Self> {
        let config = ProviderConfig::from_json(config).map_err(value_error)?;
        Ok(Self(loadgen::Provider::new(config)))
    }

    /// Starts the threads and the connect phase; returns at once.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.connect()).map_err(runtime_error)
    }

    /// Says when requests begin to be sent, a time of the run's clock, or now; from then on stalls are
    /// counted. Returns at once.
    #[pyo3(signature = (at_ns=None))]
    fn start(&self, py: Python<'_>, at_ns: Option<u64>) -> PyResult<()> {
        py.detach(|| self.0.start(at_ns)).map_err(runtime_error)
    }

    /// Ends answering once the replies that wait have left; the counts become the result. Returns at
    /// once.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.stop()).map_err(runtime_error)
    }

    /// JSON snapshot of phase and counts.
    fn progress(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.progress())
    }

    /// JSON of the counts; RuntimeError unless the phase is "done".
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.result()).map_err(runtime_error)
    }

    /// Closes the connections and joins the threads. Releases the GIL.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// Users of the broadcast workload: each message that is published goes to all users of its subject.
#[pyclass(frozen, module = "subjectbus._core")]
pub(crate) struct Broadcaster(loadgen::Broadcaster);

#[pymethods]
impl Broadcaster {
    /// Takes a JSON object of configuration keys; ValueError names the key that cannot be used.
    #[new]
    fn new(config: &str) -> PyResult<Self> {
        let config = BroadcasterConfig::from_json(config).map_err(value_error)?;
        Ok(Self(loadgen::Broadcaster::new(config)))
    }

    /// Starts the threads and the connect phase; returns at once.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.connect()).map_err(runtime_error)
    }

    /// Begins the warm-up at a time of the run's clock, or now; returns at once.
    #[pyo3(signature = (at_ns=None))]
    fn start(&self, py: Python<'_>, at_ns: Option<u64>) -> PyResult<()> {
        py.detach(|| self.0.start(at_ns)).map_err(runtime_error)
    }

    /// Ends early: no more messages, then the drain, then the result; returns at once.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.stop()).map_err(runtime_error)
    }

    /// JSON snapshot of phase and counts.
    fn progress(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.progress())
    }

    /// JSON of everything measured; RuntimeError unless the phase is "done".
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.result()).map_err(runtime_error)
    }

    /// Closes the connections and joins the threads. Releases the GIL.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
