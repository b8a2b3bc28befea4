// SPDX-License-Identifier: Apache-2.0

//go:build integration

package nodes

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/watchdog"
)

// named waits until the watchdog has named the cause for a Node, in all three
// ways: condition, Event and metric.
func (l *lab) named(node string, want watchdog.Cause, words ...string) {
	l.Helper()
	l.until(fmt.Sprintf("Node %s has the cause %s", node, want), func() error {
		n := l.get(node)
		if n == nil {
			return fmt.Errorf("there is no Node %s", node)
		}
		for _, c := range n.Status.Conditions {
			if c.Type != watchdog.Condition {
				continue
			}
			if c.Reason != string(want) || c.Status != corev1.ConditionFalse {
				return fmt.Errorf("condition %+v", c)
			}
			return contains(c.Message, words...)
		}
		return fmt.Errorf("no condition %s; taints %v, providerID %q", watchdog.Condition, n.Spec.Taints, n.Spec.ProviderID)
	})
	// One Event for a cause: of a pod that has crashed it may not know why yet.
	l.Logf("%s", l.eventOf(watchdog.Component, node, string(want)))
	l.measured(fmt.Sprintf(`outrigger_node_uninitialized_seconds{cause=%q,node=%q} `, want, node))
}

// measured waits until the operator's metrics have a line that begins so.
func (l *lab) measured(line string) {
	l.Helper()
	l.until("the metric "+line, func() error {
		text, err := l.scrape(operatorPort)
		if err != nil {
			return err
		}
		if !strings.Contains(text, "\n"+line) {
			return fmt.Errorf("there is %q", grep(text, line[:strings.IndexAny(line, "{ ")]))
		}
		return nil
	})
}

func grep(text, begin string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// makeScraper makes somebody who may read metrics, and returns its token.
func (l *lab) makeScraper() string {
	l.Helper()
	l.api.Kubectl(l, "create", "serviceaccount", "scraper")
	l.api.Kubectl(l, "create", "clusterrole", "scraper", "--verb=get", "--non-resource-url=/metrics")
	l.api.Kubectl(l, "create", "clusterrolebinding", "scraper", "--clusterrole=scraper", "--serviceaccount=default:scraper")
	return strings.TrimSpace(l.api.Kubectl(l, "create", "token", "scraper"))
}

// Ports of metrics.
const operatorPort, managerPort = "9258", "10258"

// scrape reads the metrics of a program on the first Node.
func (l *lab) scrape(port string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, "https://"+net.JoinHostPort(l.first.IP, port)+"/metrics", nil)
	l.must(err)
	request.Header.Set("Authorization", "Bearer "+l.token)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}
