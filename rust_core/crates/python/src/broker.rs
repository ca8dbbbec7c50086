//! The class `Broker`.

use std::time::Duration;

use broker::{Config, StartError};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

/// Broker with its listeners, shards and counters.
#[pyclass(module = "subjectbus._core")]
struct Broker {
    config: Config,
    /// Running broker; `None` before `start`.
    running: Option<broker::Broker>,
}

#[pymethods]
impl Broker {
    #[new]
    fn new(config: &str) -> PyResult<Self> {
        let config = Config::from_json(config).map_err(value_error)?;
        Ok(Self {
            config,
            running: None,
        })
    }

    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.running.is_some() {
            return Err(PyRuntimeError::new_err(
                "the broker has been started already",
            ));
        }
        let started = py.detach(|| broker::Broker::start(&self.config));
        self.running = Some(started.map_err(|error| match error {
            StartError::Config(error) => value_error(error),
            StartError::Listen(..) | StartError::Io(_) => PyOSError::new_err(error.to_string()),
        })?);
        Ok(())
    }

    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let addresses = PyDict::new(py);
        for (key, address) in self.running()?.addresses() {
            addresses.set_item(key, address.to_string())?;
        }
        Ok(addresses)
    }

    fn driver(&self) -> PyResult<(String, Option<String>)> {
        let (kind, fallback) = self.running()?.driver();
        Ok((kind.to_string(), fallback.map(str::to_owned)))
    }

    #[pyo3(signature = (reason=""))]
    fn drain(&self, reason: &str) -> PyResult<()> {
        self.running()?.drain(reason);
        Ok(())
    }

    #[pyo3(signature = (reason=""))]
    fn stop(&self, reason: &str) -> PyResult<()> {
        self.running()?.stop(reason);
        Ok(())
    }

    fn join(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout_s).map_err(value_error)?;
        let started = self.started()?;
        py.detach(|| started.join(timeout))
            .map_err(PyRuntimeError::new_err)
    }

    fn counters(&self) -> PyResult<String> {
        Ok(Value::Object(self.running()?.counters()).to_string())
    }
}

impl Broker {
    fn started(&self) -> PyResult<&broker::Broker> {
        self.running.as_ref().ok_or_else(not_started)
    }

    /// The broker, if it has been started and none of its shards has failed.
    fn running(&self) -> PyResult<&broker::Broker> {
        let started = self.started()?;
        match started.failure() {
            Some(failure) => Err(PyRuntimeError::new_err(failure.to_owned())),
            None => Ok(started),
        }
    }
}

fn not_started() -> PyErr {
    PyRuntimeError::new_err("the broker has not been started")
}

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Return every setting of a broker with its default, as a JSON object.
#[pyfunction]
fn default_broker_config() -> String {
    Config::default().to_json()
}

/// Return the driver that a name selects on this machine, and the reason if it is not the best one.
#[pyfunction]
fn resolve_driver(name: String) -> PyResult<(String, Option<String>)> {
    let config = Config {
        driver: name,
        ..Config::default()
    };
    let (kind, fallback) = config.resolve_driver().map_err(value_error)?;
    Ok((kind.to_string(), fallback))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Broker>()?;
    module.add_function(wrap_pyfunction!(default_broker_config, module)?)?;
    module.add_function(wrap_pyfunction!(resolve_driver, module)?)
}
