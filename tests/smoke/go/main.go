// Clients and servers for the smoke tests, with Go's standard library only.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

var roles = map[string]func(arguments []string) error{
	"handshakes": handshakes,
	"client":     client,
	"serve":      serve,
	"churn":      churn,
	"member":     member,
}

func main() {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: smoke handshakes|client|serve|churn|member ...")
		os.Exit(2)
	}
	if err := roles[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", strings.Join(os.Args[1:], " "), err)
		os.Exit(1)
	}
}

// clientConfig returns a TLS configuration that trusts one authority.
func clientConfig(caFile string) (*tls.Config, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", caFile)
	}
	return &tls.Config{RootCAs: pool}, nil
}
