;; Goes on asking for memory for ever.
;; want: OutOfFuelError: used up
(func $bad (loop $more (drop (memory.grow (i32.const 1))) (br $more)))
