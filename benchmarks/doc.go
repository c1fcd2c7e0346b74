// Package benchmarks measures embedonce from the outside: each product figure
// beside an end-to-end floor, the same steps written by hand in one loop and
// nothing else, in one run.
//
//	go test -run '^$' -bench Hits -count 10 ./benchmarks | tee hits.txt
//	benchstat -col /by hits.txt
package benchmarks
