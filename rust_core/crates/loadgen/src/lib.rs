//! subjectbus-loadgen
