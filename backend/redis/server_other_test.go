//go:build !linux

package redis

import "os/exec"

func dieWithTest(*exec.Cmd) {}
