// A kfake cluster (the fake Kafka of franz-go) for the tests of other brokers: it prints its
// bootstrap servers on one line, and runs until its standard input ends, so that it never outlives
// the test that started it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// apiVersions is a flag of "API=VERSION", any number of times: numbers of Kafka's protocol.
type apiVersions map[int16]int16

func (a apiVersions) String() string { return fmt.Sprint(map[int16]int16(a)) }

func (a apiVersions) Set(text string) error {
	api, version, found := strings.Cut(text, "=")
	key, err := strconv.ParseInt(api, 10, 16)
	if err != nil || !found {
		return fmt.Errorf("%q is not API=VERSION", text)
	}
	number, err := strconv.ParseInt(version, 10, 16)
	a[int16(key)] = int16(number)
	return err
}

func main() {
	latest, closed := apiVersions{}, apiVersions{}
	brokers := flag.Int("brokers", 1, "the number of brokers")
	kafka := flag.String("kafka", "", "the Kafka version whose APIs it offers, as 3.0")
	flag.Var(latest, "latest", "API=VERSION: its latest version, -1 leaves the API out")
	flag.Var(closed, "closed", "API=VERSION: closes the connection from this version on")
	flag.Parse()

	options := []kfake.Opt{kfake.NumBrokers(*brokers)}
	if offered := offer(*kafka, latest); offered != nil {
		options = append(options, kfake.MaxVersions(offered))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for api, from := range closed {
		cluster.ControlKey(api, func(request kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if request.GetVersion() < from {
				return nil, nil, false
			}
			return nil, errors.New("closed as the test wants it"), true
		})
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	_, _ = io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}

// offer returns the versions that the cluster offers; nil for all that it has.
func offer(kafka string, latest apiVersions) *kversion.Versions {
	if kafka == "" && len(latest) == 0 {
		return nil
	}
	versions := kversion.Stable()
	if kafka != "" {
		if versions = kversion.FromString(kafka); versions == nil {
			fmt.Fprintf(os.Stderr, "%q is no version of Kafka\n", kafka)
			os.Exit(2)
		}
	}
	for api, version := range latest {
		versions.SetMaxKeyVersion(api, version)
	}
	return versions
}
