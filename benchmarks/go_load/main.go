// Load by Go's HTTP clients: net/http with HTTP/2, and quic-go with HTTP/3.
//
//	go_load -http 3 -m 50 -n 500 https://127.0.0.1:8443/json
//
// Each client opens connections as Go does: HTTP/3 opens one; HTTP/2 opens one for each request that finds none that is
// ready, which for a new client are as many as its first requests. The last line is a JSON object with the counts.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go/http3"
)

type summary struct {
	Requests   int64 `json:"requests"`
	Bytes      int64 `json:"bytes"`
	DurationUs int64 `json:"duration_us"`
	P50Us      int64 `json:"p50_us"`
	P99Us      int64 `json:"p99_us"`
	MaxUs      int64 `json:"max_us"`
	Errors     int64 `json:"errors"`
	// New connections; 0 if the library does not tell.
	Connections int64 `json:"connections"`
}

var (
	version  = flag.Int("http", 2, "version of HTTP: 2 or 3")
	clients  = flag.Int("c", 1, "clients, which share no connections")
	inFlight = flag.Int("m", 1, "requests in flight of each client")
	requests = flag.Int64("n", 0, "number of requests")
	length   = flag.Duration("d", 0, "length of the run, in place of -n")
)

func main() {
	flag.Parse()
	if flag.NArg() != 1 || (*requests == 0) == (*length == 0) || (*version != 2 && *version != 3) {
		fmt.Fprintln(os.Stderr, "usage: go_load -http 2|3 [-c N] [-m N] -n N|-d TIME URL")
		os.Exit(2)
	}
	result, err := run(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "go_load:", err)
	}
	text, _ := json.Marshal(result)
	fmt.Println(string(text))
	if err != nil {
		os.Exit(1)
	}
}

// run sends the load. The error is the first one of a request.
func run(url string) (summary, error) {
	var result summary
	var first atomic.Pointer[error]
	var taken, bytes, failed atomic.Int64
	var lock sync.Mutex
	var latencies []time.Duration
	var group sync.WaitGroup
	start := time.Now()
	isOver := func() bool {
		if *length > 0 {
			return time.Since(start) >= *length
		}
		return taken.Add(1) > *requests
	}
	for range *clients {
		client := newClient(&result.Connections)
		for range *inFlight {
			group.Go(func() {
				var own []time.Duration
				for !isOver() && first.Load() == nil {
					begun := time.Now()
					n, err := get(client, url)
					if err != nil {
						failed.Add(1)
						first.CompareAndSwap(nil, &err)
						break
					}
					bytes.Add(n)
					own = append(own, time.Since(begun))
				}
				lock.Lock()
				defer lock.Unlock()
				latencies = append(latencies, own...)
			})
		}
	}
	group.Wait()
	result.DurationUs = time.Since(start).Microseconds()
	result.Requests = int64(len(latencies))
	result.Bytes = bytes.Load()
	result.Errors = failed.Load()
	if len(latencies) > 0 {
		slices.Sort(latencies)
		at := func(share float64) int64 {
			return latencies[int(share*float64(len(latencies)-1))].Microseconds()
		}
		result.P50Us, result.P99Us, result.MaxUs = at(0.5), at(0.99), at(1)
	}
	if err := first.Load(); err != nil {
		return result, *err
	}
	return result, nil
}

// newClient is a client without connections, which accepts any certificate.
func newClient(connections *int64) *http.Client {
	config := &tls.Config{InsecureSkipVerify: true}
	if *version == 3 {
		return &http.Client{Transport: &http3.Transport{TLSClientConfig: config}}
	}
	dialer := &net.Dialer{}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   config,
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			atomic.AddInt64(connections, 1)
			return dialer.DialContext(ctx, network, address)
		},
	}}
}

// get reads a response and requires its status and version.
func get(client *http.Client, url string) (int64, error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || response.ProtoMajor != *version) {
		err = fmt.Errorf("%s over %s", response.Status, response.Proto)
	}
	return n, err
}
