// TLS, if the command line names files behind the topic: those of the authority, of the client's certificate and its key.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func security() []kgo.Opt {
	if len(os.Args) < 6 {
		return nil
	}
	pem, err := os.ReadFile(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(os.Args[4], os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	return []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{certificate}})}
}
