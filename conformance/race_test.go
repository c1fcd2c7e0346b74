//go:build race

package conformance

// The race detector makes everything several times slower; see TestSelftest.
const raceDetector = true
