// HTTP/3 clients for the smoke tests, with quic-go.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

var roles = map[string]func(arguments []string) error{
	"client":   client,
	"trailers": trailers,
	"drain":    drain,
	"load":     load,
}

func main() {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: smoke-h3 client|trailers|drain|load ...")
		os.Exit(2)
	}
	if err := roles[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", strings.Join(os.Args[1:], " "), err)
		os.Exit(1)
	}
}

// connect returns a client that trusts one authority and speaks HTTP/3 only.
func connect(caFile string) (*http.Client, *http3.Transport, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("no certificate in %s", caFile)
	}
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool},
		QUICConfig:      &quic.Config{MaxIdleTimeout: 20 * time.Second},
	}
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, transport, nil
}
