package bolt

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Some tests need another process: they start this binary again, which then does
// one of these things instead of testing.
const childVariable = "EMBEDONCE_BOLT_TEST_CHILD"

var children = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		run := children[name]
		if run == nil {
			fmt.Println("no such child:", name)
			os.Exit(2)
		}
		if err := run(os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is a process that runs one of children. It prints a line for each thing
// it has done.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startChild(t testing.TB, name string, args ...string) *child {
	t.Helper()
	return startBinary(t, os.Args[0], name, args...)
}

func startBinary(t testing.TB, binary, name string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{cmd: cmd, in: in, lines: bufio.NewScanner(out)}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	return c
}

// next returns the next line that the child prints; ok is false at the end.
func (c *child) next() (line string, ok bool) {
	ok = c.lines.Scan()
	return c.lines.Text(), ok
}

func (c *child) expect(t testing.TB, want string) {
	t.Helper()
	line, _ := c.next()
	require.Equal(t, want, line)
}

// goOn lets a child continue that waits in awaitParent.
func (c *child) goOn(t testing.TB) {
	t.Helper()
	_, err := io.WriteString(c.in, "go on\n")
	require.NoError(t, err)
}

// end waits for the child and returns what it still had to say.
func (c *child) end(t testing.TB) string {
	t.Helper()
	var rest []string
	for line, ok := c.next(); ok; line, ok = c.next() {
		rest = append(rest, line)
	}
	err := c.cmd.Wait()
	require.NoError(t, err, "the child said %q", rest)
	return strings.Join(rest, "\n")
}

func awaitParent() {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}
