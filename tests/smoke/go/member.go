package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// member ADDRESS PORT NAME POSTS MODES [h2c]: a server behind a gateway. failing_servers/member.py describes it.
func member(arguments []string) error {
	address, port, name, posts, modes := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]
	log, err := os.OpenFile(posts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	var mode atomic.Value
	mode.Store("ok")
	handler := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			fmt.Fprintln(log, r.URL.Path)
		}
		delay := 5 * time.Millisecond
		if mode.Load() == "slow" {
			delay += 200 * time.Millisecond
		}
		time.Sleep(delay)
		w.Header().Set("X-Member", name)
		if mode.Load() == "500" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, r.URL.Path)
	}
	server := &http.Server{Handler: http.HandlerFunc(handler), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(len(arguments) == 5)
	server.Protocols.SetUnencryptedHTTP2(len(arguments) == 6)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2, syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() {
		for received := range signals {
			if received == syscall.SIGTERM {
				timeout, stop := context.WithTimeout(context.Background(), 5*time.Second)
				ended <- server.Shutdown(timeout)
				stop()
				return
			}
			if text, err := os.ReadFile(modes); err == nil {
				mode.Store(strings.TrimSpace(string(text)))
			}
		}
	}()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil {
		return err
	}
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-ended
}
