// Compare measures embedonce against its predecessor, a Python library, on the same
// texts and the same fake provider. README.md says who is compared, and how.
//
//	go run ./benchmarks/compare [-quick] [-json] [-seed N] [-turns N] [-python PATH]
package main
