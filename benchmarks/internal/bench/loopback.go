package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// ErrNotLoopback is of servers on another machine: a benchmark would load them, and
// measure the network.
var ErrNotLoopback = errors.New("the server is not on this machine's loopback interface")

// CheckLoopback returns an error unless every server that a URL names is on the
// loopback interface or a socket of this machine. Names are not looked up: of them,
// localhost alone is allowed. The error quotes nothing of the URL but the host, as
// there may be a password in it.
func CheckLoopback(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return errors.New("the server's URL can't be parsed; one such as redis://127.0.0.1:6379 is allowed")
	}
	if u.Scheme == "unix" {
		return nil
	}
	// A cluster's URL names further servers. For S3, give the URL of the endpoint.
	for _, host := range append(u.Query()["addr"], u.Host) {
		if !isLoopback(host) {
			return fmt.Errorf("%w: its host is %q; 127.0.0.1, ::1 and localhost are allowed", ErrNotLoopback, host)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
