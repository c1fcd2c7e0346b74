package openai

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// parseBaseURL checks a base URL. Its errors quote nothing of it: it can hold a
// password, which the errors of net/url print.
func parseBaseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil:
		return nil, errors.New("BaseURL can't be parsed: give a URL such as https://api.openai.com/v1")
	case !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https"):
		return nil, errors.New("BaseURL must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("BaseURL names no host")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/embeddings"):
		return nil, errors.New("BaseURL ends in /embeddings, which is added to it: give the part before")
	}
	return u, nil
}

// hostOf returns a URL's host without its port, as names are compared: in lower
// case, without the dot of the root, an address in its shortest form.
func hostOf(u *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return host
}

// identityOf returns the normalised form of a base URL: spellings of one address
// share their vectors. It has no credentials. A query may choose the model behind a
// gateway, and may be a key: its digest is in the identity.
func identityOf(u *url.URL) string {
	scheme, host, port := strings.ToLower(u.Scheme), hostOf(u), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && !(scheme == "http" && port == "80") && !(scheme == "https" && port == "443") {
		host += ":" + port
	}
	identity := scheme + "://" + host + strings.TrimRight(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		identity += fmt.Sprintf("?sha256=%x", sha256.Sum256([]byte(u.RawQuery)))
	}
	return identity
}

// carrierNAT is shared address space (RFC 6598), which overlay networks use too.
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// isLocal says whether a host can mean another machine elsewhere.
func isLocal(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsUnspecified() ||
			carrierNAT.Contains(addr)
	}
	if !strings.Contains(host, ".") {
		return true
	}
	// ".svc" is a service of one Kubernetes cluster, before the cluster's own domain
	// is searched; "localhost.localdomain" is what Linux systems call themselves.
	for _, suffix := range []string{".local", ".localdomain", ".localhost", ".internal", ".lan", ".home.arpa", ".svc"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

// endpointOf returns where requests go, with apiVersion in the query where it is
// set. A query and credentials of the base URL are kept: a gateway may ask for
// them.
func endpointOf(base *url.URL, apiVersion string) *url.URL {
	u := base.JoinPath("embeddings")
	u.Fragment, u.RawFragment = "", ""
	if apiVersion != "" {
		query := u.Query()
		query.Set("api-version", apiVersion)
		u.RawQuery = query.Encode()
	}
	return u
}
