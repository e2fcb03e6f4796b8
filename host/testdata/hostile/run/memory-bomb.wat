;; Takes memory until it gets no more, then panics as a runtime out of memory does.
;; want: LimitError: memory pages
(func $bad
  (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
  unreachable)
