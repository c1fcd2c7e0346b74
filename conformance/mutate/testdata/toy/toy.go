// Package toy is what the tests of mutate change in place of a backend.
package toy

// Half returns half of n, and 0 for what is negative.
func Half(n int) int {
	if n < 0 {
		return 0
	}
	return n / 2
}

// Join returns a and b together.
func Join(a, b string) string { return a + b }

// Twice is tested by what is no conformance test.
func Twice(n int) int { return 2 * n }

// Steps returns how often 1 can be taken from n.
func Steps(n int) (steps int) {
	for n > 0 {
		n--
		steps++
	}
	return steps
}

// Answer is tested in another process.
func Answer() int { return 42 }
