// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/story"
)

// stage returns a stage for stories on the suite's clusters. In addition to the commands of package story it has:
//
//	provider start|stop            the provider's API server
//	kubelet start [LATENCY]|stop   pinger and controller; the provider responds after LATENCY
//	renewals NUMBER                wait until the node's lease was renewed NUMBER times
func (s *suite) stage() *story.Stage {
	s.Helper()
	began := s.auditEnd()
	consumer, err := story.NewSide(s.consumer.Config(), tenant, func() []string { return s.writesSince(began) })
	require.NoError(s, err)
	var end func() // stops the running pinger and controller
	return &story.Stage{
		Home: "consumer", Sides: map[string]*story.Side{"consumer": consumer}, Alone: true,
		Settle: func() {
			if end == nil {
				return
			}
			s.expect("quiet", func(context.Context) string {
				marker := s.auditEnd()
				s.renewals(marker, 1)
				return strings.Join(s.writesSince(marker), ", ")
			})
		},
		Commands: map[string]story.Command{
			"provider": func(_ bool, args []string) error {
				if args[0] == "stop" {
					return s.provider.StopAPIServer()
				}
				return s.provider.StartAPIServer(s.Context())
			},
			"kubelet": func(_ bool, args []string) (err error) {
				if args[0] == "stop" {
					end()
					end = nil
					return nil
				}
				var latency time.Duration
				if len(args) > 1 {
					if latency, err = time.ParseDuration(args[1]); err != nil {
						return err
					}
				}
				_, end = s.kubeletFarAway(latency)
				return nil
			},
			"renewals": func(_ bool, args []string) error {
				if len(args) != 1 {
					return errors.New("how many?")
				}
				times, err := strconv.Atoi(args[0])
				if err == nil {
					s.renewals(s.auditEnd(), times)
				}
				return err
			},
		},
	}
}
