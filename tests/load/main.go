// The load test: distinguishable exchanges through a running gateway. Every byte is compared, and no exchange
// may stall.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits for the gateway's resources after the load, and intervals of disruptions.
const (
	idleCPUMax     = 50 * time.Millisecond
	idleTime       = 2 * time.Second
	settleMax      = 10 * time.Second
	termMax        = 5 * time.Second
	growthBytesMax = 96 << 20
	reloadEvery    = 7 * time.Second
	restartEvery   = 1500 * time.Millisecond
)

type options struct {
	binary, driver, cores string
	seed                  uint64
	seconds               float64
	workers               int
	only                  int64
	repeat                int
	show                  bool
	clients               []int
}

func main() {
	// The kernel kills the gateway with the thread that has started it (Pdeathsig).
	runtime.LockOSThread()
	var o options
	flag.StringVar(&o.binary, "blitz", "", "binary under test")
	flag.StringVar(&o.driver, "io", "uring", "driver: uring or epoll")
	flag.StringVar(&o.cores, "cores", "2", "number of cores of the gateway")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())&0xffffffff, "seed of all exchanges")
	flag.Float64Var(&o.seconds, "seconds", 30, "duration of the load in seconds")
	flag.IntVar(&o.workers, "workers", 24, "number of concurrent exchanges or pipelines")
	flag.Int64Var(&o.only, "only", -1, "run only the exchange with this number")
	flag.IntVar(&o.repeat, "repeat", 20, "with -only, number of repetitions")
	flag.BoolVar(&o.show, "show", false, "with -only, print the plan and exit")
	names := flag.String("clients", strings.Join(versionNames[:], ","), "kinds of clients")
	flag.Parse()
	for name := range strings.SplitSeq(*names, ",") {
		o.clients = append(o.clients, slices.Index(versionNames[:], name))
	}
	if o.binary == "" || flag.NArg() > 0 || slices.Contains(o.clients, -1) {
		flag.Usage()
		os.Exit(2)
	}
	if o.show {
		for _, p := range drawAll(o.seed, uint64(o.only), o.clients) {
			fmt.Println(p)
		}
		return
	}
	fmt.Printf("seed %d, %s, %d workers, %.0f s, clients %s, %s\n", o.seed, o.driver, o.workers, o.seconds, *names, runtime.Version())
	if err := run(&o); err != nil {
		fmt.Printf("%v\nrepeat with: --io %s --seed %d\n", err, o.driver, o.seed)
		os.Exit(1)
	}
}

// loadRun holds the participants of a run.
type loadRun struct {
	options   *options
	tracker   *tracker
	gateway   *gateway
	upstreams []*upstream
	clients   [versions][clientSets]*client
	raw       *rawClient
}

func run(o *options) error {
	folder, err := os.MkdirTemp("", "blitz-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	ctx, cancelRun := context.WithCancel(context.Background())
	defer cancelRun()
	s := &loadRun{options: o, tracker: newTracker(cancelRun)}
	if err := s.prepare(folder); err != nil {
		return err
	}
	defer s.gateway.command.Process.Kill()
	before := s.gateway.resources()
	watcher := watch(s.tracker, s.gateway)
	s.runWorkers(ctx)
	watcher.stop()
	s.checkResources(before)
	fmt.Println(s.tracker.summary())
	if e := s.tracker.longestSilent.Load(); e != nil {
		fmt.Printf("the longest silence was in %s\n    %s\n", e.plan, e.state())
	}
	if count := s.tracker.failureCount(); count > 0 {
		return fmt.Errorf("%d failures; last log lines of the gateway:\n%s", count, s.gateway.log())
	}
	return nil
}

// prepare starts the upstreams and the gateway, and creates the clients.
func (s *loadRun) prepare(folder string) error {
	o := s.options
	if err := makeCertificates(o.binary, folder); err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(folder, "localhost.pem"), filepath.Join(folder, "localhost.key"))
	if err != nil {
		return err
	}
	for address := range addresses {
		for version := range versions {
			if address == lateHandshake && version != h1TLS {
				continue
			}
			u, err := startUpstream(version, address, s.tracker, &certificate, o.seed)
			if err != nil {
				return err
			}
			s.upstreams = append(s.upstreams, u)
		}
	}
	if s.gateway, err = startGateway(o.binary, o.driver, o.cores, folder, s.upstreams); err != nil {
		return err
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return err
	}
	trust := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	trust.RootCAs.AppendCertsFromPEM(authority)
	for version := range versions {
		for set := range clientSets {
			s.clients[version][set] = newClient(version, set, s.gateway.addresses, s.tracker, trust, o.seed)
		}
	}
	s.raw = &rawClient{s.gateway.addresses, s.tracker, trust}
	return nil
}

// runWorkers runs numbered exchanges concurrently until the time is over.
func (s *loadRun) runWorkers(ctx context.Context) {
	o := s.options
	ending, stop := context.WithTimeout(ctx, time.Duration(o.seconds*float64(time.Second)))
	defer stop()
	var next atomic.Uint64
	var group sync.WaitGroup
	for range o.workers {
		group.Go(func() {
			for ending.Err() == nil {
				number, round := next.Add(1), uint64(0)
				if o.only >= 0 {
					if number > uint64(o.repeat) {
						return
					}
					number, round = uint64(o.only), number
				}
				s.runExchanges(ctx, number, round)
			}
		})
	}
	if o.only < 0 {
		group.Go(func() { s.disrupt(ending) })
	}
	group.Wait()
}

func (s *loadRun) runExchanges(ctx context.Context, number, round uint64) {
	plans := drawAll(s.options.seed, number, s.options.clients)
	for _, p := range plans {
		p.round = round
	}
	if client := plans[0].client; client < versions {
		s.clients[client][number%clientSets].run(ctx, plans[0])
		return
	}
	s.raw.run(ctx, plans)
}

// disrupt restarts risky upstreams, reloads the gateway and closes idle client connections, until the run
// ends.
func (s *loadRun) disrupt(ctx context.Context) {
	rng := rand.New(rand.NewPCG(s.options.seed, 1<<63))
	reload, restart := time.NewTicker(reloadEvery), time.NewTicker(restartEvery)
	defer reload.Stop()
	defer restart.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload.C:
			s.gateway.reload()
		case <-restart.C:
			s.clients[rng.IntN(versions)][rng.IntN(clientSets)].transport.CloseIdleConnections()
			u := s.upstreams[versions+rng.IntN(versions)]
			if err := u.restart(rng); err != nil {
				s.tracker.fail(nil, "an upstream did not restart: %v", err)
			}
		}
		if s.gateway.hasEnded() {
			s.tracker.fail(nil, "the gateway ended unexpectedly")
			s.tracker.cancelRun()
			return
		}
	}
}

type resources struct {
	files  map[string]int
	memory int64
}

func (g *gateway) resources() resources {
	return resources{g.descriptors(), g.residentBytes()}
}

// more lists the kinds of files whose number has grown.
func (r resources) more(before resources) []string {
	var more []string
	for kind, count := range r.files {
		if grown := count - before.files[kind]; grown > 0 {
			more = append(more, fmt.Sprintf("%d of %s", grown, kind))
		}
	}
	slices.Sort(more)
	return more
}

// checkResources closes all connections and checks the remaining resources of the gateway.
func (s *loadRun) checkResources(before resources) {
	for _, set := range s.clients {
		for _, c := range set {
			c.transport.CloseIdleConnections()
		}
	}
	if open := s.tracker.waitUntilEmpty(abortNoticedMax + time.Second); len(open) > 0 {
		for _, e := range open {
			s.tracker.fail(e, "an upstream still handles an exchange that has ended")
		}
	}
	for _, u := range s.upstreams {
		u.close()
	}
	deadline := time.Now().Add(settleMax)
	after := s.gateway.resources()
	for len(after.more(before)) > 0 && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
		after = s.gateway.resources()
	}
	cpu := s.gateway.cpuTime()
	time.Sleep(idleTime)
	idle := s.gateway.cpuTime() - cpu
	fmt.Printf("afterwards: %d sockets (%d before), %d MiB resident (%d before), %v of CPU in %v\n",
		after.files["socket"], before.files["socket"], after.memory>>20, before.memory>>20, idle, idleTime)
	if more := after.more(before); len(more) > 0 {
		s.tracker.fail(nil, "open files are left %v after all connections were closed: %s\n%s", settleMax, strings.Join(more, ", "), strings.Join(s.gateway.sockets(), "\n"))
	}
	if after.memory-before.memory > growthBytesMax {
		s.tracker.fail(nil, "resident memory grew from %d to %d MiB", before.memory>>20, after.memory>>20)
	}
	if idle > idleCPUMax {
		s.tracker.fail(nil, "the gateway used %v of CPU in %v without connections", idle, idleTime)
	}
	if err := s.gateway.stop(termMax); err != nil {
		s.tracker.fail(nil, "SIGTERM: %v", err)
	}
	if text := s.gateway.log(); strings.Contains(text, "panicked") {
		s.tracker.fail(nil, "the gateway panicked")
	}
}
