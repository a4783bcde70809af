package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
)

// load URL CA FILE: 16 requests at a time on each of two connections, until the file exists. Prints the number of
// requests; every failure is fatal, and a third connection is one.
func load(arguments []string) error {
	isStopped := func() bool {
		_, err := os.Stat(arguments[2])
		return err == nil
	}
	var completed, dialed atomic.Int64
	var all sync.WaitGroup
	failures := make(chan error, 32)
	for range 2 {
		peer, transport, err := connect(arguments[1])
		if err != nil {
			return err
		}
		defer transport.Close()
		transport.Dial = func(ctx context.Context, address string, tls *tls.Config, config *quic.Config) (*quic.Conn, error) {
			dialed.Add(1)
			return quic.DialAddrEarly(ctx, address, tls, config)
		}
		for range 16 {
			all.Go(func() {
				for !isStopped() {
					if _, err := get(peer, arguments[0]); err != nil {
						failures <- err
						return
					}
					completed.Add(1)
				}
			})
		}
	}
	all.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	if dialed.Load() != 2 {
		return fmt.Errorf("%d connections in place of 2", dialed.Load())
	}
	fmt.Printf("%d requests over HTTP/3\n", completed.Load())
	return nil
}
