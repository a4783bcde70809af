package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// churn URL CA FILE: eight clients that open a connection per request, half of them over HTTP/2, half of them
// with session resumption, until the file exists. Prints the number of requests and of certificates; every
// failure is fatal.
func churn(arguments []string) error {
	config, err := clientConfig(arguments[1])
	if err != nil {
		return err
	}
	isStopped := func() bool {
		_, err := os.Stat(arguments[2])
		return err == nil
	}
	var mutex sync.Mutex
	var completed, resumed int
	seen := map[string]bool{}
	failures := make(chan error, 8)
	for number := range 8 {
		own := config.Clone()
		if number%2 == 0 {
			own.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		}
		transport := &http.Transport{TLSClientConfig: own, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(number < 4)
		transport.Protocols.SetHTTP2(number >= 4)
		peer := &http.Client{Transport: transport, Timeout: 10 * time.Second}
		go func() {
			for !isStopped() {
				response, err := peer.Get(arguments[0])
				if err != nil {
					failures <- err
					return
				}
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				transport.CloseIdleConnections()
				if err != nil || response.StatusCode != http.StatusOK {
					failures <- fmt.Errorf("%s, %v", response.Status, err)
					return
				}
				mutex.Lock()
				completed++
				seen[response.TLS.PeerCertificates[0].SerialNumber.String()] = true
				if response.TLS.DidResume {
					resumed++
				}
				mutex.Unlock()
			}
			failures <- nil
		}()
	}
	for range 8 {
		if err := <-failures; err != nil {
			return err
		}
	}
	fmt.Printf("%d connections, %d resumed, %d certificates\n", completed, resumed, len(seen))
	return nil
}
