// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrForeignFilter means that somebody else filters what enters the pod's
// interface. Their verdict could stop a packet before our redirect, or our
// redirect could bypass their filter, so nothing is set up.
var ErrForeignFilter = errors.New("tc filters of another program")

// redirectPriority marks our filters.
const redirectPriority = 0x4f52

// ensureRedirect sends everything that enters from out of to: all protocols,
// ARP and IPv6 included. It uses u32 since a match-all classifier is a module
// that small kernels lack.
func (n *namespace) ensureRedirect(from, to netlink.Link) (changed bool, err error) {
	qdisc, err := n.ingressQdisc(from)
	if err != nil {
		return false, err
	}
	if qdisc == nil {
		if err := n.QdiscAdd(newIngress(from)); err != nil {
			return false, fmt.Errorf("add ingress qdisc to %s: %w", from.Attrs().Name, err)
		}
	}
	ours, foreign, err := n.ingressFilters(from)
	if err != nil {
		return qdisc == nil, err
	}
	if foreign > 0 {
		return false, fmt.Errorf("%w: interface %s has %d on its %s qdisc; remove them or keep that program off pods with a VM",
			ErrForeignFilter, from.Attrs().Name, foreign, qdisc.Type())
	}
	if redirectsTo(ours, to) {
		return qdisc == nil, nil
	}
	if err := n.deleteFilters(from, ours); err != nil {
		return qdisc == nil, err
	}
	if err := n.FilterAdd(redirect(from, to)); err != nil {
		return qdisc == nil, fmt.Errorf("redirect %s to %s: %w", from.Attrs().Name, to.Attrs().Name, err)
	}
	return true, nil
}

// removeRedirect removes our filter and, when nothing else uses it, the
// ingress qdisc. A clsact qdisc is never ours and stays. There may be no interface.
func (n *namespace) removeRedirect(from netlink.Link) error {
	if from == nil {
		return nil
	}
	qdisc, err := n.ingressQdisc(from)
	if err != nil || qdisc == nil {
		return err
	}
	ours, foreign, err := n.ingressFilters(from)
	if err != nil {
		return err
	}
	if err := n.deleteFilters(from, ours); err != nil {
		return err
	}
	if foreign > 0 || qdisc.Type() != "ingress" {
		return nil
	}
	if err := n.QdiscDel(newIngress(from)); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove ingress qdisc of %s: %w", from.Attrs().Name, err)
	}
	return nil
}

// ingressQdisc returns nil if the interface has neither ingress nor clsact.
func (n *namespace) ingressQdisc(link netlink.Link) (netlink.Qdisc, error) {
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return n.QdiscList(link) })
	if err != nil {
		return nil, fmt.Errorf("list qdiscs of %s: %w", link.Attrs().Name, err)
	}
	for _, qdisc := range qdiscs {
		if qdisc.Attrs().Parent == netlink.HANDLE_INGRESS {
			return qdisc, nil
		}
	}
	return nil, nil
}

func newIngress(link netlink.Link) netlink.Qdisc {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index,
		Parent:    netlink.HANDLE_INGRESS,
		Handle:    netlink.MakeHandle(0xffff, 0),
	}}
}

// ingressFilters lists our filters and counts those of others.
func (n *namespace) ingressFilters(link netlink.Link) (ours []netlink.Filter, foreign int, err error) {
	all, err := dump(func() ([]netlink.Filter, error) { return n.FilterList(link, netlink.HANDLE_MIN_INGRESS) })
	if err != nil {
		return nil, 0, fmt.Errorf("list filters of %s: %w", link.Attrs().Name, err)
	}
	for _, filter := range all {
		if filter.Attrs().Priority == redirectPriority {
			ours = append(ours, filter)
		} else {
			foreign++
		}
	}
	return ours, foreign, nil
}

// deleteFilters removes all filters at our priority.
func (n *namespace) deleteFilters(link netlink.Link, ours []netlink.Filter) error {
	if len(ours) == 0 {
		return nil
	}
	err := n.FilterDel(&netlink.U32{FilterAttrs: filterAttrs(link)})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("remove redirect of %s: %w", link.Attrs().Name, err)
	}
	return nil
}

func filterAttrs(link netlink.Link) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: link.Attrs().Index,
		Parent:    netlink.HANDLE_MIN_INGRESS, // ingress and clsact both know it
		Priority:  redirectPriority,
		Protocol:  unix.ETH_P_ALL,
	}
}

// redirect matches everything: a U32 without selector has the key 0/0.
func redirect(from, to netlink.Link) netlink.Filter {
	return &netlink.U32{
		FilterAttrs: filterAttrs(from),
		Actions: []netlink.Action{&netlink.MirredAction{
			ActionAttrs:  netlink.ActionAttrs{Action: netlink.TC_ACT_STOLEN},
			MirredAction: netlink.TCA_EGRESS_REDIR,
			Ifindex:      to.Attrs().Index,
		}},
	}
}

func redirectsTo(filters []netlink.Filter, to netlink.Link) bool {
	for _, filter := range filters {
		u32, ok := filter.(*netlink.U32)
		if ok && len(u32.Actions) == 1 {
			mirred, ok := u32.Actions[0].(*netlink.MirredAction)
			return ok && mirred.Ifindex == to.Attrs().Index
		}
	}
	return false
}

// isNotFound reports whether err means that what was to be removed does not exist.
func isNotFound(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) ||
		errors.Is(err, unix.EADDRNOTAVAIL) || errors.As(err, &netlink.LinkNotFoundError{})
}
