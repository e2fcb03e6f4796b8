;; Calls itself without end.
;; want: LimitError: call depth
(func $bad (call $bad))
