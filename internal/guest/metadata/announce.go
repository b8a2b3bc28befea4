// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/guestinfo"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// announceLimit bounds the wait for an address. DHCP has been tried before; see
// podvm-init.
const announceLimit = time.Minute

// Announce reports to the platform what an agent of the platform, which the pod VM lacks,
// would report: to vSphere the VM's addresses, to Azure that the VM is ready. On other
// platforms it does nothing.
func Announce(ctx context.Context, p Platform) error {
	ctx, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	switch p {
	case Azure:
		return reportReady(ctx, newClient(), wireServer, 100*time.Millisecond)
	case VSphere:
		return announce(ctx, backdoor{}, localAddresses, 500*time.Millisecond)
	}
	return nil
}

// announce waits for an address and writes all into the guest information,
// which the provider reads in the VM's extraConfig.
func announce(ctx context.Context, info guestInfo, local func() ([]netip.Addr, error), pause time.Duration) error {
	for {
		if list, err := local(); err == nil && len(list) > 0 {
			return info.Set(guestinfo.Address, joined(list))
		}
		if err := poll.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%s is not set, since there is no address: %w", guestinfo.Address, err)
		}
	}
}

func joined(list []netip.Addr) string {
	texts := make([]string, len(list))
	for i, addr := range list {
		texts[i] = addr.String()
	}
	return strings.Join(texts, ",")
}

// localAddresses returns those by which others reach this machine, IPv4 first.
func localAddresses() ([]netip.Addr, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, link := range links {
		if link.Flags&net.FlagUp == 0 || link.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := link.Addrs()
		if err != nil {
			return nil, err
		}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
				list = append(list, prefix.Addr())
			}
		}
	}
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return list, nil
}

// wireServer is Azure's virtual public address (Azure's page "What is IP address
// 168.63.129.16?"): where the host's agent listens, for this VM alone.
const wireServer = "http://168.63.129.16"

// The protocol's versions that this code speaks, the newest first, and the headers of
// each call, as in Azure's agent for Linux.
var wireVersions = []string{"2015-04-05", "2012-11-30"}

const (
	wireVersionHeader = "x-ms-version"
	wireAgentHeader   = "x-ms-agent-name"
	wireAgent         = "outrigger"
)

// goalState holds the host's identifiers for this VM.
type goalState struct {
	XMLName     xml.Name `xml:"GoalState"`
	Incarnation string   `xml:"Incarnation"`
	Container   string   `xml:"Container>ContainerId"`
	Instance    string   `xml:"Container>RoleInstanceList>RoleInstance>InstanceId"`
}

// healthReport is the report that the host waits for.
type healthReport struct {
	XMLName     xml.Name `xml:"Health"`
	Incarnation string   `xml:"GoalStateIncarnation"`
	Container   string   `xml:"Container>ContainerId"`
	Instance    string   `xml:"Container>RoleInstanceList>Role>InstanceId"`
	State       string   `xml:"Container>RoleInstanceList>Role>Health>State"`
}

// reportReady reports to Azure that this VM has been provisioned. Without the report
// the VM fails with OSProvisioningTimedOut after 20 minutes.
func reportReady(ctx context.Context, client *http.Client, host string, pause time.Duration) error {
	for {
		err := reportOnce(ctx, client, host)
		if err == nil {
			return nil
		}
		if poll.Sleep(ctx, pause) != nil {
			return fmt.Errorf("cannot report to Azure that this VM is ready: %w", err)
		}
		pause = min(2*pause, retryReport)
	}
}

const retryReport = 5 * time.Second

func reportOnce(ctx context.Context, client *http.Client, host string) error {
	text, _, err := send(ctx, client, call{url: host + "/?comp=versions"})
	if err != nil {
		return err
	}
	var offered struct {
		Supported []string `xml:"Supported>Version"`
	}
	if err := xml.Unmarshal([]byte(text), &offered); err != nil {
		return fmt.Errorf("the versions of the wire server: %w", err)
	}
	at := slices.IndexFunc(wireVersions, func(v string) bool { return slices.Contains(offered.Supported, v) })
	if at < 0 {
		return fmt.Errorf("the wire server speaks none of the versions %q", wireVersions)
	}
	headers := []string{wireVersionHeader, wireVersions[at], wireAgentHeader, wireAgent}
	if text, _, err = send(ctx, client, call{url: host + "/machine/?comp=goalstate", headers: headers}); err != nil {
		return err
	}
	var goal goalState
	if err := xml.Unmarshal([]byte(text), &goal); err != nil {
		return fmt.Errorf("the goal state: %w", err)
	}
	if goal.Incarnation == "" || goal.Container == "" || goal.Instance == "" {
		return errors.New("the goal state lacks incarnation, container or instance")
	}
	report, err := xml.Marshal(healthReport{Incarnation: goal.Incarnation, Container: goal.Container, Instance: goal.Instance, State: "Ready"})
	if err != nil {
		return err
	}
	_, _, err = send(ctx, client, call{
		method: http.MethodPost, url: host + "/machine?comp=health", body: xml.Header + string(report),
		headers: append(headers, "Content-Type", "text/xml; charset=utf-8"),
	})
	return err
}
