package bench

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// Machine is where a run took place.
type Machine struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	MemoryMiB  int    `json:"memory_mib"` // 0 where it is not known
}

// ThisMachine describes the machine on which it runs.
func ThisMachine() Machine {
	return Machine{
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		CPU:        cpuid.CPU.BrandName,
		Cores:      runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		MemoryMiB:  memoryMiB(),
	}
}

func memoryMiB() int {
	file, err := os.Open("/proc/meminfo") // Linux alone has it
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.Atoi(fields[1])
			return kib >> 10
		}
	}
	return 0
}

// measured are the modules whose version matters to a figure.
var measured = []string{
	"github.com/maypok86/otter/v2",
	"github.com/pkoukk/tiktoken-go",
	"github.com/redis/go-redis/v9",
	"github.com/zeebo/xxh3",
	"go.etcd.io/bbolt",
	"modernc.org/sqlite",
	"zombiezen.com/go/sqlite",
}

// versions returns the versions of Go, of this library and of what it stands on.
func versions(ctx context.Context) map[string]string {
	all := map[string]string{"go": runtime.Version(), "embedonce": commit(ctx)}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return all
	}
	for _, module := range info.Deps {
		for _, name := range measured {
			if module.Path == name {
				all[name] = module.Version
			}
		}
	}
	return all
}

// commit names what is measured; "go run" leaves it out of the build information.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--tags", "--exclude", "*/*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
