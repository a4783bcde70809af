// A load of exchanges that can be told apart, through a running gateway: every byte is compared, and
// nothing may stand still.
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

// What is allowed to remain of a load.
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
	// The kernel ends the gateway with the thread that has started it.
	runtime.LockOSThread()
	var o options
	flag.StringVar(&o.binary, "blitz", "", "the binary under test")
	flag.StringVar(&o.driver, "io", "uring", "uring or epoll")
	flag.StringVar(&o.cores, "cores", "2", "how many cores the gateway uses")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())&0xffffffff, "decides about every exchange")
	flag.Float64Var(&o.seconds, "seconds", 30, "how long exchanges begin")
	flag.IntVar(&o.workers, "workers", 24, "how many exchanges, or pipelines, are under way at a time")
	flag.Int64Var(&o.only, "only", -1, "plays nothing but the exchange with this number")
	flag.IntVar(&o.repeat, "repeat", 20, "with -only, how often")
	flag.BoolVar(&o.show, "show", false, "with -only, prints the plan and ends")
	names := flag.String("clients", strings.Join(versionNames[:], ","), "which kinds of clients take part")
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
		fmt.Printf("%v\nagain: --io %s --seed %d\n", err, o.driver, o.seed)
		os.Exit(1)
	}
}

// stage is everything that takes part in a run.
type stage struct {
	options   *options
	ledger    *ledger
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
	ctx, enough := context.WithCancel(context.Background())
	defer enough()
	s := &stage{options: o, ledger: newLedger(enough)}
	if err := s.prepare(folder); err != nil {
		return err
	}
	defer s.gateway.command.Process.Kill()
	before := s.gateway.resources()
	watcher := watch(s.ledger, s.gateway)
	s.play(ctx)
	watcher.stop()
	s.wrapUp(before)
	fmt.Println(s.ledger.summary())
	if e := s.ledger.quietest.Load(); e != nil {
		fmt.Printf("the longest silence was that of %s\n    %s\n", e.plan, e.state())
	}
	if count := s.ledger.failureCount(); count > 0 {
		return fmt.Errorf("%d failures; the gateway said last:\n%s", count, s.gateway.log())
	}
	return nil
}

// prepare starts the upstreams, the gateway in front of them, and makes the clients.
func (s *stage) prepare(folder string) error {
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
			if address == tardy && version != h1TLS {
				continue
			}
			u, err := startUpstream(version, address, s.ledger, &certificate, o.seed)
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
			s.clients[version][set] = newClient(version, set, s.gateway.addresses, s.ledger, trust, o.seed)
		}
	}
	s.raw = &rawClient{s.gateway.addresses, s.ledger, trust}
	return nil
}

// play has workers take one number after the other until the time is over.
func (s *stage) play(ctx context.Context) {
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
				s.playOne(ctx, number, round)
			}
		})
	}
	if o.only < 0 {
		group.Go(func() { s.disturb(ending) })
	}
	group.Wait()
}

func (s *stage) playOne(ctx context.Context, number, round uint64) {
	plans := drawAll(s.options.seed, number, s.options.clients)
	for _, p := range plans {
		p.round = round
	}
	if client := plans[0].client; client < versions {
		s.clients[client][number%clientSets].play(ctx, plans[0])
		return
	}
	s.raw.play(ctx, plans)
}

// disturb restarts risky upstreams, reloads the gateway and has clients make new connections, until the
// run ends.
func (s *stage) disturb(ctx context.Context) {
	dice := rand.New(rand.NewPCG(s.options.seed, 1<<63))
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
			s.clients[dice.IntN(versions)][dice.IntN(clientSets)].transport.CloseIdleConnections()
			u := s.upstreams[versions+dice.IntN(versions)]
			if err := u.restart(dice); err != nil {
				s.ledger.fail(nil, "an upstream did not come back: %v", err)
			}
		}
		if s.gateway.hasEnded() {
			s.ledger.fail(nil, "the gateway ended by itself")
			s.ledger.enough()
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

// more names the kinds of files of which there are more than before.
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

// wrapUp has everybody leave, and looks at what remains in the gateway.
func (s *stage) wrapUp(before resources) {
	for _, set := range s.clients {
		for _, c := range set {
			c.transport.CloseIdleConnections()
		}
	}
	if open := s.ledger.awaitEmpty(abortNoticedMax + time.Second); len(open) > 0 {
		for _, e := range open {
			s.ledger.fail(e, "an upstream is still busy with an exchange that is over")
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
		s.ledger.fail(nil, "open files are left %v after everybody has gone: %s\n%s", settleMax, strings.Join(more, ", "), strings.Join(s.gateway.sockets(), "\n"))
	}
	if after.memory-before.memory > growthBytesMax {
		s.ledger.fail(nil, "resident memory grew from %d to %d MiB", before.memory>>20, after.memory>>20)
	}
	if idle > idleCPUMax {
		s.ledger.fail(nil, "the gateway took %v of CPU in %v without connections", idle, idleTime)
	}
	if err := s.gateway.stop(termMax); err != nil {
		s.ledger.fail(nil, "SIGTERM: %v", err)
	}
	if text := s.gateway.log(); strings.Contains(text, "panicked") {
		s.ledger.fail(nil, "the gateway panicked")
	}
}
