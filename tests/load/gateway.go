package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// gateway is the Blitz process under test.
type gateway struct {
	command   *exec.Cmd
	folder    string
	addresses gatewayAddresses
	ended     chan error
}

// makeCertificates creates an authority and a certificate for localhost with the binary.
func makeCertificates(binary, folder string) error {
	output, err := exec.Command(binary, "cert", "--out", folder, "localhost", "127.0.0.1").CombinedOutput()
	if err != nil {
		return fmt.Errorf("blitz cert: %w: %s", err, output)
	}
	return nil
}

// startGateway starts the binary as a proxy to all upstreams and waits until it accepts connections.
func startGateway(binary, driver, cores, folder string, upstreams []*upstream) (*gateway, error) {
	clear, secure := freeAddress(), freeAddress()
	g := &gateway{folder: folder, addresses: gatewayAddresses{clear, secure}, ended: make(chan error, 1)}
	arguments := []string{"run", "--control-listen", "off", "--io", driver, "--cores", cores, "--log", "info",
		"--listen", clear, "--listen-tls", secure,
		"--cert", filepath.Join(folder, "localhost.pem"), "--key", filepath.Join(folder, "localhost.key"),
		"--upstream-ca", filepath.Join(folder, "ca.pem"), "--request-trailers"}
	for _, u := range upstreams {
		arguments = append(arguments, "--to", addressNames[u.address]+"/"+versionNames[u.version]+"="+u.url())
	}
	g.command = exec.Command(binary, arguments...)
	log, err := os.Create(g.logFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	g.command.Stdout, g.command.Stderr = log, log
	// The gateway is killed when the load ends for any reason.
	g.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.command.Start(); err != nil {
		return nil, err
	}
	go func() { g.ended <- g.command.Wait() }()
	// The load also has a thread per core and must not delay the gateway.
	syscall.Setpriority(syscall.PRIO_PROCESS, g.pid(), -5)
	for range 200 {
		if connection, err := net.Dial("tcp", secure); err == nil {
			connection.Close()
			return g, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("blitz does not accept connections: %s", g.log())
}

func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (g *gateway) pid() int        { return g.command.Process.Pid }
func (g *gateway) logFile() string { return filepath.Join(g.folder, "blitz.log") }

// log returns the end of the gateway's log.
func (g *gateway) log() string {
	text, _ := os.ReadFile(g.logFile())
	return string(text[max(0, len(text)-3000):])
}

// openSockets is the number of the gateway's open sockets, including listeners.
func (g *gateway) openSockets() int {
	return g.descriptors()["socket"]
}

// descriptors counts the gateway's open files by kind: socket, anon_inode:[io_uring], a path.
func (g *gateway) descriptors() map[string]int {
	folder := fmt.Sprintf("/proc/%d/fd", g.pid())
	entries, _ := os.ReadDir(folder)
	counts := map[string]int{}
	for _, entry := range entries {
		link, err := os.Readlink(filepath.Join(folder, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		for _, kind := range []string{"socket", "pipe"} {
			if strings.HasPrefix(link, kind+":[") {
				link = kind
			}
		}
		counts[link]++
	}
	return counts
}

func (g *gateway) residentBytes() int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.pid()))
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10
}

// cpuTime is the gateway's CPU time; /proc counts in hundredths of a second.
func (g *gateway) cpuTime() time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.pid()))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// reload makes the gateway reload its files.
func (g *gateway) reload() { g.command.Process.Signal(syscall.SIGHUP) }

// hasEnded is whether the process has ended.
func (g *gateway) hasEnded() bool { return len(g.ended) > 0 }

// stop sends SIGTERM, and kills the process if it does not end in time.
func (g *gateway) stop(timeout time.Duration) error {
	began := time.Now()
	g.command.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-g.ended:
		if err != nil {
			return fmt.Errorf("ended with %w", err)
		}
		return nil
	case <-time.After(timeout):
		sockets := strings.Join(g.sockets(), "\n")
		g.command.Process.Kill()
		<-g.ended
		return fmt.Errorf("still runs %.1f s after SIGTERM:\n%s", time.Since(began).Seconds(), sockets)
	}
}

// sockets lists the gateway's connections with their queued bytes, if `ss` is installed.
func (g *gateway) sockets() []string {
	output, err := exec.Command("ss", "-tnpHO").Output()
	if err != nil {
		return nil
	}
	mark := fmt.Sprintf("pid=%d,", g.pid())
	var lines []string
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, mark) {
			lines = append(lines, "        "+strings.Join(strings.Fields(line)[:5], " "))
		}
	}
	return lines
}
