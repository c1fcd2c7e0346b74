package redis

import (
	"os/exec"
	"syscall"
)

// dieWithTest lets a server end with this process, however that ends.
func dieWithTest(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
