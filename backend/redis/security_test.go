package redis

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

const secret = "s3cr3t"

// None of these may show what was mistyped.
func TestURLsWithoutSecretsInErrors(t *testing.T) {
	for _, url := range []string{
		"", secret, "redis", "redis:", "redis:user:" + secret + "@localhost:6379", "user:" + secret + "@localhost", secret + "://localhost",
		"redis//user:" + secret + "@localhost", "redis://user:" + secret + "@local host", "redis://user:" + secret + "%zz@localhost",
		"redis://user:" + secret + "@localhost:port", "redis://localhost/" + secret, "redis://localhost:6379/0?password=" + secret + "&nonsense=1",
		"redis://localhost/0/" + secret, "redis+sentinel://user:" + secret + "@localhost", "redis+" + secret + "://localhost",
		"redis://user:" + secret + "@localhost?addr=other:1", "unix+cluster://:" + secret + "@/tmp/x", "unix://:" + secret + "@",
		"redis://:" + secret + "@localhost\x00", "http://user:" + secret + "@localhost", "redis+cluster://user:" + secret + "@localhost?read_only=true",
		"redis+cluster://user:" + secret + "@localhost?route_randomly=true", "redis+sentinel://:" + secret + "@localhost?master_name=a&replica_only=true",
		"rediss+cluster://:" + secret + "@localhost?max_redirects=" + secret,
		"redis://" + secret + "#x@localhost:1/0", "redis+cluster://" + secret + "#x@localhost:1", "redis+sentinel://" + secret + "#x@localhost:1?master_name=a",
	} {
		logged := new(journal)
		driver.SetLogger(logged)
		c, err := Open(url, &Options{Timeout: 50 * time.Millisecond})
		driver.SetLogger(quiet{})
		require.Error(t, err, "%q", url)
		require.Nil(t, c)
		require.NotContains(t, err.Error(), secret, "%q", url)
		require.NotContains(t, fmt.Sprintf("%+v %#v", err, err.Error()), secret)
		require.NotContains(t, logged.text(), secret)
	}
}

// journal keeps what the driver logs.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Printf(_ context.Context, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

func TestUsers(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t)
	acl := func(rules ...any) {
		require.NoError(t, s.raw.Do(ctx, append([]any{"acl", "setuser"}, rules...)...).Err())
	}
	acl("app", "reset", "on", ">"+secret, "~embedonce:*", "+get", "+set", "+multi", "+exec", "+echo", "+hello", "+info", "+unlink", "+scan",
		"+eval", "+exists", "+strlen", "+getrange", "+memory|usage")
	acl("least", "reset", "on", ">"+secret, "~embedonce:*", "+get", "+set", "+multi", "+exec", "+echo")
	acl("reader", "reset", "on", ">"+secret, "~embedonce:*", "+get", "+echo")
	url := func(user, password string) string { return "redis://" + user + ":" + password + "@" + s.addr }
	open := func(user string) *Cache {
		c, err := Open(url(user, secret), nil)
		require.NoError(t, err, "%s", user)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}

	for _, user := range []string{"app", "least"} {
		c := open(user)
		require.NoError(t, c.SetMany(ctx, testItems(0, 10, 'a')))
		require.Len(t, readAll(t, c, testKeys(10)), 10)
		require.Equal(t, backend.SurvivesCrash, c.Info().Durability)
		require.Equal(t, user == "least", c.Info().MayEvict, "what may not be asked is not promised")
	}
	c := open("app")
	stats, err := c.Stats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 10, stats.Entries)
	require.Greater(t, stats.Bytes, int64(10*(42+9)))
	acl("app", "-memory")
	stats, err = c.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, backend.Stats{Entries: 10, Bytes: -1, FreeBytes: -1}, stats)
	removed, err := c.Delete(ctx, testKeys(10), func(i int, _ []byte) bool { return i < 3 })
	require.NoError(t, err)
	require.Equal(t, 3, removed)

	noSecrets := func(err error) {
		t.Helper()
		require.Error(t, err)
		require.NotContains(t, err.Error(), secret)
		require.NotContains(t, err.Error(), "embedonce:")
	}
	err = open("reader").SetMany(ctx, testItems(0, 10, 'b'))
	noSecrets(err)
	require.ErrorContains(t, err, "NOPERM")
	_, err = open("least").Delete(ctx, testKeys(1), nil)
	require.ErrorContains(t, err, "NOPERM")
	other, err := Open(url("app", secret), &Options{Prefix: "other:"})
	require.NoError(t, err)
	defer other.Close()
	noSecrets(other.SetMany(ctx, testItems(0, 1, 'a')))
	noSecrets(other.GetMany(ctx, testKeys(1), none))
	logged := new(journal)
	driver.SetLogger(logged)
	_, err = Open(url("app", secret+"x"), nil)
	driver.SetLogger(quiet{})
	noSecrets(err)
	require.NotContains(t, logged.text(), secret)
	require.ErrorContains(t, err, "WRONGPASS")
	acl("default", "off")
	_, err = Open("redis://"+s.addr, nil)
	noSecrets(err)
	require.ErrorContains(t, err, "NOAUTH")

	// The server quotes arguments of a command that it doesn't know.
	acl("default", "on")
	renamed := startServer(t, "--rename-command", "GET", secret, "--rename-command", "MULTI", "nomulti")
	without := openOn(t, renamed.addr, Options{})
	err = without.GetMany(ctx, testKeys(1), none)
	noSecrets(err)
	require.NotContains(t, err.Error(), string(testKeys(1)[0][:4]))
	noSecrets(without.SetMany(ctx, []backend.Item{{Key: testKey(1), Value: []byte(secret)}}))
}

// certificate is one for 127.0.0.1, signed by itself.
func certificate(t testing.TB, dir string) (certFile, keyFile string, pool *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(certFile, certPEM, 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certPEM))
	return certFile, keyFile, pool
}

func TestTLS(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	cert, key, pool := certificate(t, t.TempDir())
	port := freePort(t)
	startServer(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no", "--tls-ca-cert-file", cert)
	url := fmt.Sprintf("rediss://:@127.0.0.1:%d", port)

	_, err := Open(url, &Options{Timeout: 2 * time.Second})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "certificate")
	_, err = Open(strings.Replace(url, "127.0.0.1", "localhost", 1), &Options{TLS: &tls.Config{RootCAs: pool}, Timeout: 2 * time.Second})
	require.ErrorContains(t, err, "certificate", "it is for another name")
	_, err = Open(strings.Replace(url, "rediss", "redis", 1), &Options{Timeout: 2 * time.Second})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "rediss://")
	c, err := Open(url, &Options{TLS: &tls.Config{RootCAs: pool}})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetMany(ctx, testItems(0, 500, 'a')))
	require.Len(t, readAll(t, c, testKeys(500)), 500)

	_, err = Open("redis://127.0.0.1:1", &Options{TLS: &tls.Config{}})
	require.ErrorContains(t, err, "Options.TLS")
	client := driver.NewClient(&driver.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	_, err = New(client, &Options{TLS: &tls.Config{}})
	require.ErrorContains(t, err, "Options.TLS")
}

func TestSocket(t *testing.T) {
	needServer(t)
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	startServer(t, "--unixsocket", socket, "--requirepass", secret)
	c, err := Open("unix://:"+secret+"@"+socket+"?db=3", nil)
	require.NoError(t, err)
	require.NoError(t, c.SetMany(context.Background(), testItems(0, 5, 'a')))
	require.Len(t, readAll(t, c, testKeys(5)), 5)
	require.NoError(t, c.Close())
}
